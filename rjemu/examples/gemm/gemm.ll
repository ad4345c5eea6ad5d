; C = A * B^T on gfx950: A is [M, K] and B is [N, K], both f16 and row-major; C is [M, N], f32, row-major.
; M and N are multiples of 128, K is a multiple of 64; each matrix has fewer than 2^31 elements.
;
; A workgroup of 256 work-items (4 waves) computes a 128 x 128 tile of C, walking along K in steps of 64. Each step
; stages 128 x 64 tiles of A and B in LDS; then each wave multiplies its 64 x 64 quarter in 2 x 2 blocks of
; v_mfma_f32_32x32x16_f16. The matrix operands are swapped (B first), which transposes the accumulator's layout: a lane
; then holds four neighbouring columns of one row of C and stores them as 16 bytes.
;
; Which lane holds what, for lane l (LLVM AMDGPUUsage and the CDNA4 ISA document, "Matrix arithmetic instructions"):
;   operands: row l % 32, k = 8 * (l / 32) + 0..7       accumulator element r: column of C 8 * (r / 4) + 4 * (l / 32) + r % 4

target triple = "amdgcn-amd-amdhsa"

; Rows are padded by 16 bytes, so that the lanes of a column do not meet in one LDS bank.
@tile_a = internal addrspace(3) global [128 x [72 x half]] poison, align 16
@tile_b = internal addrspace(3) global [128 x [72 x half]] poison, align 16

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare void @llvm.amdgcn.s.barrier()
declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x16.f16(<8 x half>, <8 x half>, <16 x float>, i32 immarg, i32 immarg, i32 immarg)

; Copies columns [%k, %k + 64) of 128 rows to LDS. Work-item t moves 16-byte pieces t, t + 256, t + 512, t + 768;
; a row has 8 pieces.
define internal void @stage(ptr addrspace(1) %rows, i32 %row_length, i32 %k, ptr addrspace(3) %tile, i32 %item) alwaysinline {
entry:
  %first_row = lshr i32 %item, 3
  %piece = and i32 %item, 7
  %column = shl i32 %piece, 3
  %source_column = add i32 %k, %column
  br label %copy

copy:
  %i = phi i32 [ 0, %entry ], [ %next, %copy ]
  %down = shl i32 %i, 5
  %row = add i32 %first_row, %down
  %row_start = mul i32 %row, %row_length
  %offset = add i32 %row_start, %source_column
  %source = getelementptr half, ptr addrspace(1) %rows, i32 %offset
  %target = getelementptr [72 x half], ptr addrspace(3) %tile, i32 %row, i32 %column
  %data = load <8 x half>, ptr addrspace(1) %source, align 16
  store <8 x half> %data, ptr addrspace(3) %target, align 16
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, 4
  br i1 %more, label %copy, label %done, !llvm.loop !0

done:
  ret void
}

; Stores four columns of a row of C from elements %first to %first + 3 of a lane's accumulator.
define internal void @store_quad(<16 x float> %block, i32 %first, ptr addrspace(1) %place) alwaysinline {
  %i1 = add i32 %first, 1
  %i2 = add i32 %first, 2
  %i3 = add i32 %first, 3
  %x0 = extractelement <16 x float> %block, i32 %first
  %x1 = extractelement <16 x float> %block, i32 %i1
  %x2 = extractelement <16 x float> %block, i32 %i2
  %x3 = extractelement <16 x float> %block, i32 %i3
  %v0 = insertelement <4 x float> poison, float %x0, i32 0
  %v1 = insertelement <4 x float> %v0, float %x1, i32 1
  %v2 = insertelement <4 x float> %v1, float %x2, i32 2
  %v3 = insertelement <4 x float> %v2, float %x3, i32 3
  %column = shl i32 %first, 1
  %target = getelementptr float, ptr addrspace(1) %place, i32 %column
  store <4 x float> %v3, ptr addrspace(1) %target, align 16
  ret void
}

; Stores a 32 x 32 block of C; %place is the lane's row, column 4 * (lane / 32), of the block.
define internal void @store_block(<16 x float> %block, ptr addrspace(1) %place) alwaysinline {
  call void @store_quad(<16 x float> %block, i32 0, ptr addrspace(1) %place)
  call void @store_quad(<16 x float> %block, i32 4, ptr addrspace(1) %place)
  call void @store_quad(<16 x float> %block, i32 8, ptr addrspace(1) %place)
  call void @store_quad(<16 x float> %block, i32 12, ptr addrspace(1) %place)
  ret void
}

define amdgpu_kernel void @gemm(ptr addrspace(1) noalias readonly %a, ptr addrspace(1) noalias readonly %b,
                                ptr addrspace(1) noalias %c, i32 %n, i32 %k) #0 !reqd_work_group_size !1 {
entry:
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %tile_column = call i32 @llvm.amdgcn.workgroup.id.x()
  %tile_row = call i32 @llvm.amdgcn.workgroup.id.y()
  %first_row = shl i32 %tile_row, 7
  %first_column = shl i32 %tile_column, 7
  %a_start = mul i32 %first_row, %k
  %b_start = mul i32 %first_column, %k
  %a_rows = getelementptr half, ptr addrspace(1) %a, i32 %a_start
  %b_rows = getelementptr half, ptr addrspace(1) %b, i32 %b_start

  ; The wave's quarter, and the lane's row and first k in an operand.
  %lane = and i32 %item, 63
  %lane_row = and i32 %lane, 31
  %lane_half = lshr i32 %lane, 5
  %lane_k = shl i32 %lane_half, 3
  %wave = lshr i32 %item, 6
  %wave_down = lshr i32 %wave, 1
  %wave_right = and i32 %wave, 1
  %quarter_row = shl i32 %wave_down, 6
  %quarter_column = shl i32 %wave_right, 6
  %row0 = add i32 %quarter_row, %lane_row
  %row1 = add i32 %row0, 32
  %column0 = add i32 %quarter_column, %lane_row
  %column1 = add i32 %column0, 32
  br label %step

step:
  %k0 = phi i32 [ 0, %entry ], [ %k_next, %multiplied ]
  %c00 = phi <16 x float> [ zeroinitializer, %entry ], [ %d00, %multiplied ]
  %c01 = phi <16 x float> [ zeroinitializer, %entry ], [ %d01, %multiplied ]
  %c10 = phi <16 x float> [ zeroinitializer, %entry ], [ %d10, %multiplied ]
  %c11 = phi <16 x float> [ zeroinitializer, %entry ], [ %d11, %multiplied ]
  call void @stage(ptr addrspace(1) %a_rows, i32 %k, i32 %k0, ptr addrspace(3) @tile_a, i32 %item)
  call void @stage(ptr addrspace(1) %b_rows, i32 %k, i32 %k0, ptr addrspace(3) @tile_b, i32 %item)
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  br label %multiply

multiply:
  %depth = phi i32 [ 0, %step ], [ %deeper, %multiply ]
  %e00 = phi <16 x float> [ %c00, %step ], [ %d00, %multiply ]
  %e01 = phi <16 x float> [ %c01, %step ], [ %d01, %multiply ]
  %e10 = phi <16 x float> [ %c10, %step ], [ %d10, %multiply ]
  %e11 = phi <16 x float> [ %c11, %step ], [ %d11, %multiply ]
  %at = add i32 %depth, %lane_k
  %a0_place = getelementptr [72 x half], ptr addrspace(3) @tile_a, i32 %row0, i32 %at
  %a1_place = getelementptr [72 x half], ptr addrspace(3) @tile_a, i32 %row1, i32 %at
  %b0_place = getelementptr [72 x half], ptr addrspace(3) @tile_b, i32 %column0, i32 %at
  %b1_place = getelementptr [72 x half], ptr addrspace(3) @tile_b, i32 %column1, i32 %at
  %a0 = load <8 x half>, ptr addrspace(3) %a0_place, align 16
  %a1 = load <8 x half>, ptr addrspace(3) %a1_place, align 16
  %b0 = load <8 x half>, ptr addrspace(3) %b0_place, align 16
  %b1 = load <8 x half>, ptr addrspace(3) %b1_place, align 16
  %d00 = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x16.f16(<8 x half> %b0, <8 x half> %a0, <16 x float> %e00, i32 0, i32 0, i32 0)
  %d01 = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x16.f16(<8 x half> %b1, <8 x half> %a0, <16 x float> %e01, i32 0, i32 0, i32 0)
  %d10 = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x16.f16(<8 x half> %b0, <8 x half> %a1, <16 x float> %e10, i32 0, i32 0, i32 0)
  %d11 = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x16.f16(<8 x half> %b1, <8 x half> %a1, <16 x float> %e11, i32 0, i32 0, i32 0)
  %deeper = add i32 %depth, 16
  %more_depth = icmp ult i32 %deeper, 64
  br i1 %more_depth, label %multiply, label %multiplied, !llvm.loop !0

multiplied:
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %k_next = add i32 %k0, 64
  %more_steps = icmp ult i32 %k_next, %k
  br i1 %more_steps, label %step, label %store

store:
  %c_row = add i32 %first_row, %row0
  %c_row_start = mul i32 %c_row, %n
  %c_column = add i32 %first_column, %quarter_column
  %lane_column = shl i32 %lane_half, 2
  %c_lane_column = add i32 %c_column, %lane_column
  %c_offset = add i32 %c_row_start, %c_lane_column
  %n32 = shl i32 %n, 5
  %place00 = getelementptr float, ptr addrspace(1) %c, i32 %c_offset
  %place01 = getelementptr float, ptr addrspace(1) %place00, i32 32
  %place10 = getelementptr float, ptr addrspace(1) %place00, i32 %n32
  %place11 = getelementptr float, ptr addrspace(1) %place10, i32 32
  call void @store_block(<16 x float> %d00, ptr addrspace(1) %place00)
  call void @store_block(<16 x float> %d01, ptr addrspace(1) %place01)
  call void @store_block(<16 x float> %d10, ptr addrspace(1) %place10)
  call void @store_block(<16 x float> %d11, ptr addrspace(1) %place11)
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="256,256" "amdgpu-waves-per-eu"="2" "amdgpu-no-implicitarg-ptr" }

!0 = distinct !{!0, !{!"llvm.loop.unroll.full"}}
!1 = !{i32 256, i32 1, i32 1}
